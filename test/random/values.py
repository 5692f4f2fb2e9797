"""What the makers of random programs share: a value, and how a statement is refused."""


MOST_ELEMENTS = 1500
MOST_VALUE = 40.0
CLEAR = 2e-4  # from a kink, a tie, a jump


class Reject(Exception):
    pass


class Value:
    def __init__(self, name, data, batch, kind=""):
        self.name, self.data, self.batch, self.kind = name, data, batch, kind

    @property
    def shape(self):
        return list(self.data.shape)

    @property
    def rank(self):
        return self.data.dim()

    @property
    def is_float(self):
        return self.data.is_floating_point()

    def free(self):
        """Axes along which samples may mix."""
        return [i for i in range(self.rank) if i != self.batch]
