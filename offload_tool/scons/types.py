"""SCons's classes, by the names that annotations of this package use; SCons has no types.

Values and aliases are nodes as well. Only `compat` uses private names of these classes.
"""

from __future__ import annotations

import SCons.Environment
import SCons.Node.FS

Environment = SCons.Environment.Base
FileSystem = SCons.Node.FS.FS
Folder = SCons.Node.FS.Dir
Node = SCons.Node.FS.Base
