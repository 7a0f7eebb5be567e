"""`python -m underglass` is the console command, for a shell that does not find it."""

from server.cli import main

main()
