"""Model weights: the catalogue, where the files come from, and the proof that they are the right ones.

`voicejobs.models.pull.ensure` is what commands call; `voicejobs.models.installed.resolve` is what workers call.
"""
