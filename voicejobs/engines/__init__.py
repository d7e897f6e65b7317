"""Adapters of recognisers, voices and voice activity detectors; their libraries are imported after this package."""

from voicejobs.settings import forbid_telemetry

forbid_telemetry()
