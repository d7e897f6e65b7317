"""Whatever changes with the machine: slots, devices, concurrency, supervision; installed as voicejobs_workers."""
