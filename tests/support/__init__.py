"""What several test files share; it holds no tests."""
