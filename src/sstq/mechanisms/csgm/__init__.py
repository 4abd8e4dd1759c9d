"""CSGM and L2-CSGM: coordinate-sampled Gaussian mechanisms with a trusted aggregator."""
