// A stream that collects a server's log lines, readable at any time.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

namespace weir::testing {

class LogCapture final : private std::streambuf {
 public:
  LogCapture() : stream_(this) {}

  std::ostream& stream() { return stream_; }

  std::vector<std::string> Lines() const {
    const std::lock_guard<std::mutex> lock(mu_);
    std::istringstream text(text_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  // Of a server that writes JSON: the lines with this message.
  std::vector<nlohmann::json> Events(const std::string& message) const {
    std::vector<nlohmann::json> events;
    for (const std::string& line : Lines()) {
      nlohmann::json event = nlohmann::json::parse(line);
      if (event["message"] == message) events.push_back(std::move(event));
    }
    return events;
  }

 private:
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    const std::lock_guard<std::mutex> lock(mu_);
    text_.append(bytes, static_cast<size_t>(size));
    return size;
  }
  int overflow(int c) override {
    const std::lock_guard<std::mutex> lock(mu_);
    if (c != traits_type::eof()) text_ += static_cast<char>(c);
    return 0;
  }

  mutable std::mutex mu_;
  std::string text_;
  std::ostream stream_;
};

}  // namespace weir::testing
