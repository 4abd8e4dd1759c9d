"""Speed, as ratios against reference implementations in one run: `python -m benchmarks [names]`."""
