"""What a member does in the rounds: its client's, its owner's and its replica's part."""
