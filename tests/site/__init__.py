"""The pages of docs/, their pictures and the reference that is made from the code."""
