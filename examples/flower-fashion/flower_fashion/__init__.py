"""The paper's network, trained by Flower from private messages."""
