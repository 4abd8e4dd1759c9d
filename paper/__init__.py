"""Tools for researchers: the paper's reproduction and theory, data sets, simulated training, benchmarks, the demo."""
