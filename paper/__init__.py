"""Tools for researchers: the paper's reproduction and theory, data sets, simulated training, benchmarks, the demo."""

import paper.baselines  # noqa: F401 (registers Clean, TurboQuant, CSGM and L2-CSGM)
