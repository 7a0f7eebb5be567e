"""Tools for authors of lessons: run a lesson in JupyterLab, store its pictures, check its parts."""
