fn main() {
    println!("{:?}", forecloud::ros::probe());
}
