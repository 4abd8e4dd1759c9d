"""Run the command line with `python -m sstq`."""

from sstq.cli import main

if __name__ == "__main__":
    main()
