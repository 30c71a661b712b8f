"""What users do with the formats: bundle, unbundle, embed, list.

Each operation takes file names, reads by mapping, and writes outputs that appear only
when they are complete. Nothing here knows SCons or a command line.
"""
