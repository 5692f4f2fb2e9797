"""What pyproject.toml cannot say: the wheel has a library of this platform in it, but no code for one Python."""
from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class Platform(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Binary, cmdclass={"bdist_wheel": Platform})
