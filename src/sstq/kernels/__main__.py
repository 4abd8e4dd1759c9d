"""`python -m sstq.kernels` compiles all kernels."""

import sys

from sstq.kernels.warmup import main

if __name__ == "__main__":
    sys.exit(main())
