"""Real-time saliency: a network that reads a classifier's feature maps and returns a mask."""
