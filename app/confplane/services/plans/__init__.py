"""Plans: the changes that make a cluster what a manifest says, decided before they are carried out."""
