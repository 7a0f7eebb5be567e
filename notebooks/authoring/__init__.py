"""What authors of lessons need: run a lesson in JupyterLab, store its pictures, check its parts."""
