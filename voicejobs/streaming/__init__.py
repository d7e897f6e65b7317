"""Recognition of sound while it comes: phrases are found, shown while they last, and made final when they end."""
