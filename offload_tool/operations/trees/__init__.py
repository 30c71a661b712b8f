"""Operations on folders, wheels and other trees of files."""
