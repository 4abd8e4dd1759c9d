"""Long runs in parts: rounds, cohorts, shards of files and public groups."""
