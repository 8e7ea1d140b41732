"""Whole data sets: sources of images, a plan of parts, workers that fill it, and the maps that lie in a folder."""
