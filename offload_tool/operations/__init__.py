"""Operations of users on the formats: bundle, unbundle, embed, list.

Each operation takes file names, maps its inputs, and writes outputs that appear only
when they are complete. This folder does not depend on SCons or a command line.
"""
