"""Pictures of the demo and of training."""
