"""The mathematics: pure functions on flat float32 vectors. No torch, no I/O, no clock."""
