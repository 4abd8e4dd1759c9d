"""FrameUnit: one signed row of a fast frame per message."""
