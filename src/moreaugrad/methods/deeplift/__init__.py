"""DeepLIFT and the rewriting of networks that it needs."""
