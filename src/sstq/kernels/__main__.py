"""`python -m sstq.kernels`: a module of its own, because processes that compile cannot import `__main__`."""

import sys

from sstq.kernels.warmup import main

if __name__ == "__main__":
    sys.exit(main())
