//! Holds the tests that compare this project with release 0.1.0, from which it takes nothing but behaviour.
