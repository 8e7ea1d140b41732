"""Rows -> summaries, plots, tables and the page."""
