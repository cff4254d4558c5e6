"""Memory whose life has ended, or that was never what it seemed: who freed, unmapped, moved or emptied it."""
