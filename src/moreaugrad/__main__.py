"""`python -m moreaugrad`: the command line."""

from moreaugrad.cli.app import main

main()
