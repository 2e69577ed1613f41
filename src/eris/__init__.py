"""Train one model across organisations, with nobody in the middle."""
