-- Who changed a budget: the user that ran the command. Null for changes from before.
ALTER TABLE budgets ADD COLUMN made_by TEXT CHECK (made_by <> '');
