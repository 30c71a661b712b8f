"""The SCons tool: builders that make one node of the build graph per target ID.

``Environment(tools=["default", "offload"], toolpath=[PyPackageDir("offload_tool.scons")])`` loads
the tool module `offload`, which uses the rest of this package.
"""
