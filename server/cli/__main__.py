"""Run the console command as `python -m server.cli`."""

from server.cli import main

main()
