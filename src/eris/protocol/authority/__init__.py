"""The authority over epochs: who is a member, which view holds for which rounds."""
