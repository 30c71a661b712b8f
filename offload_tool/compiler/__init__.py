"""The compiler side: finding a compiler, the command of each pass, the check of its result.

Two users stand on it, the SCons tool and the command line; it knows neither.
"""
