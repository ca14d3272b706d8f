"""Operations whose results are as many as the data say."""
