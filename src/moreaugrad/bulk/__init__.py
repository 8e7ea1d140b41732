"""Whole data sets: where their images come from, and how they are explained in parts that can be resumed."""
