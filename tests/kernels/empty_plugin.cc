// A shared library without any backend in it.
extern "C" int kaon_nothing() { return 0; }
