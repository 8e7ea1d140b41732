"""`python -m moreaugrad`: the command line, also for who interrupts it while it loads."""

import sys


def main() -> None:
    """Run a command."""
    try:
        from moreaugrad.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
