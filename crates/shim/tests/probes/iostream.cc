// Streams of C++ that were bound to the standard streams before the program's own code ran.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    std::string line, path = std::string(argv[1]) + "/made";
    int lines = 0;
    while (std::getline(std::cin, line)) lines++;
    std::cout << "lines " << lines << std::endl;
    std::cerr << "to the error stream\n";
    std::ofstream out(path);
    for (int i = 0; i < 10000; i++) out << i << "\n";
    out.close();
    std::ifstream in(path);
    std::stringstream all;
    all << in.rdbuf();
    std::cout << all.str().size() << "\n";
    std::fstream both(path, std::ios::in | std::ios::out);
    both.seekp(4);
    both << "XX";
    both.seekg(0);
    both >> line >> line;
    std::cout << line << "\n";
}
