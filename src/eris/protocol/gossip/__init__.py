"""Members that keep a model of their own and exchange it with neighbours."""
