"""The front ends and the one path that they share: images in, records out."""
