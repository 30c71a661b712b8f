"""Programs that run on a GPU: one table of cases, for pytest and for another machine.

``python -m tests.gpu pack FOLDER`` builds them here; ``python3 FOLDER/run.py`` runs them there.
"""
