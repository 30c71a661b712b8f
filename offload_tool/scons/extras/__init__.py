"""Summaries, reports and compile commands of a build."""
