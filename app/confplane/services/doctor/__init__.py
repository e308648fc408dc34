"""The diagnosis of an installation: facts about its stores, and findings with the commands that fix them."""
